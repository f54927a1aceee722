"""Writes scalar_reference.txt: what PyTorch's CPU operators give for interesting inputs, one call a line.

Run from the repository's root with PyTorch 2.15: python tests/expr/make_scalar_reference.py
Line: operation type operands... = result. Floats in hexadecimal; `cast` has both types: cast:i32:u8 300 = 44.
"""
import math
import re
import torch

FLOATS = {"f32": torch.float32, "f64": torch.float64}
INTS = {"u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}
STORED = {"f16": torch.float16, "bf16": torch.bfloat16}
inf, nan = math.inf, math.nan

UNARY = {
    "neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc,
    "round": torch.round, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "exp": torch.exp,
    "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log, "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p,
    "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf, "erfc": torch.erfc, "sin": torch.sin, "cos": torch.cos,
    "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh,
    "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh, "isnan": torch.isnan, "isinf": torch.isinf,
}
INT_UNARY = {"neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "bit_not": torch.bitwise_not}
ARITHMETIC = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum, "minimum": torch.minimum,
    "fmax": torch.fmax, "fmin": torch.fmin, "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt,
    "ge": torch.ge, "floor_div": torch.floor_divide, "trunc_div": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": torch.remainder, "fmod": torch.fmod, "pow": torch.pow,
}
FLOAT_BINARY = {"div": torch.div, "atan2": torch.atan2, "hypot": torch.hypot}
INT_BINARY = {
    "bit_and": torch.bitwise_and, "bit_or": torch.bitwise_or, "bit_xor": torch.bitwise_xor,
    "gcd": torch.gcd, "shl": torch.bitwise_left_shift, "shr": torch.bitwise_right_shift,
}
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
        for op, f in UNARY.items():
            for x in UNARY_INPUTS:
                call(op, name, f, dtype, x)
        for op, f in {**ARITHMETIC, **FLOAT_BINARY}.items():
            for a in BINARY_INPUTS:
                for b in BINARY_INPUTS:
                    call(op, name, f, dtype, a, b)
    for name, dtype in INTS.items():
        for op, f in INT_UNARY.items():
            for x in int_inputs(dtype):
                call(op, name, f, dtype, x)
        for op, f in {**ARITHMETIC, **INT_BINARY}.items():
            for a in pair_inputs(dtype):
                for b in pair_inputs(dtype):
                    divides = op in ("floor_div", "trunc_div", "remainder", "fmod")
                    if divides and (b == 0 or (b == -1 and a == torch.iinfo(dtype).min)):
                        continue  # PyTorch raises, or traps
                    if op in ("shl", "shr") and b < 0 or op == "pow" and b < 0:
                        continue  # undefined, or refused for scalars
                    call(op, name, f, dtype, a, b)
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
