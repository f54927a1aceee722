"""Writes scalar_reference.txt: what PyTorch's CPU operators give for interesting inputs, one call a line.

Run from the repository's root with PyTorch 2.15: python tests/expr/make_scalar_reference.py
Line: operation type operands... = result. Floats in hexadecimal; `cast` has both types: cast:i32:u8 300 = 44.
"""
import collections
import functools
import itertools
import math
import pathlib
import re
import torch

FLOATS = {"f32": torch.float32, "f64": torch.float64}
INTS = {"u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}
STORED = {"f16": torch.float16, "bf16": torch.bfloat16}
inf, nan = math.inf, math.nan

# An operation of src/ops/scalar_ops.def that PyTorch has: its function, its arity, and whether it is one of floats, of integers.
Operation = collections.namedtuple("Operation", "name arity floats integers function")


def operations():
    for line in pathlib.Path("src/ops/scalar_ops.def").read_text().splitlines():
        if not line.startswith("OP("):
            continue
        columns = re.split(r",\s+(?![^()]*\))", line[3:-1])  # at commas outside of parentheses
        name, arity, in_floats, in_integers, torch_name = columns[0], columns[1], *columns[-3:-1], columns[-1].strip('"')
        if torch_name:
            function, *mode = torch_name.split()
            made = functools.partial(getattr(torch, function), **({"rounding_mode": mode[0]} if mode else {}))
            yield Operation(name, int(arity), in_floats != "none()", in_integers != "none()", made)


UNARY_INPUTS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 0.1, 3.7, -3.7, 1e-10, 20.0, -20.0, 90.0, 1e30, inf, -inf, nan]
BINARY_INPUTS = [0.0, -0.0, 1.0, -1.0, 0.5, -7.5, 3.0, 1e20, inf, -inf, nan]
CAST_INPUTS = [0.0, -0.0, 1.9, -1.9, 255.5, 300.7, -129.0, 3e9, -3e9, 1e20, inf, -inf, nan, 0.1, 65519.0, 65520.0, 3e-8, 1e-40,
               1.001953125, 1.005859375, 16777217.0, 3.39e38]


def text(x):
    if isinstance(x, bool):
        return str(int(x))
    if isinstance(x, int):
        return str(x)
    return "nan" if math.isnan(x) else re.sub(r"\.?0*p", "p", x.hex()) if not math.isinf(x) else str(x)


def int_inputs(dtype):
    limits = torch.iinfo(dtype)
    values = [0, 1, 2, 3, 5, 7, 31, 100, limits.max, limits.max - 1]
    return values + ([limits.min, limits.min + 1, -1, -2, -7, -100] if limits.min < 0 else [])


def pair_inputs(dtype):
    limits = torch.iinfo(dtype)
    return [0, 1, 3, 33, limits.max] + ([limits.min, -1, -7] if limits.min < 0 else [])


def main():
    lines = []

    def record(op, dtype, inputs, result):
        lines.append(f"{op} {' '.join(text(x) for x in inputs)} = {text(result)}" if dtype is None else
                     f"{op}:{dtype} {' '.join(text(x) for x in inputs)} = {text(result)}")

    def call(op, name, f, dtype, *inputs):
        tensors = [torch.tensor([x], dtype=dtype) for x in inputs]
        record(op, name, [t.item() for t in tensors], f(*tensors).item())

    for name, dtype in FLOATS.items():
        for op, arity, _, _, f in (o for o in operations() if o.floats):
            for inputs in itertools.product(*[UNARY_INPUTS if arity == 1 else BINARY_INPUTS] * arity):
                call(op, name, f, dtype, *inputs)
    for name, dtype in INTS.items():
        for op, arity, _, _, f in (o for o in operations() if o.integers):
            for inputs in itertools.product(*[int_inputs(dtype) if arity == 1 else pair_inputs(dtype)] * arity):
                a, b = inputs[0], inputs[-1]
                divides = op in ("floor_div", "trunc_div", "remainder", "fmod")
                if divides and (b == 0 or (b == -1 and a == torch.iinfo(dtype).min)):
                    continue  # PyTorch raises, or traps
                if op in ("shl", "shr", "pow") and b < 0:
                    continue  # undefined, or refused for scalars
                call(op, name, f, dtype, *inputs)
    types = {"bool": torch.bool, **INTS, **FLOATS, **STORED}
    for source, from_type in types.items():
        floating = from_type.is_floating_point
        inputs = CAST_INPUTS if floating else [False, True] if source == "bool" else int_inputs(from_type)
        for target, to_type in types.items():
            for x in inputs:
                t = torch.tensor([x], dtype=from_type)
                out_of_int64 = floating and to_type == torch.int64 and not abs(t.item()) < 2**63
                if source == target or out_of_int64:
                    continue
                record(f"cast:{source}:{target}", None, [t.item()], t.to(to_type).item())
    with open("tests/expr/scalar_reference.txt", "w") as out:
        out.write("\n".join(lines) + "\n")


main()
