"""Small programs of elementwise operators: every kind, every dtype, broadcasting, strides, conversions, special values."""

import torch
import torch.nn.functional as F
from torch.export import Dim

from case import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, rand, registry, special

PROGRAMS, op = registry(__file__)

# name: (function, low, high) on floats
UNARY = {
    "abs": (torch.abs, None, None), "neg": (torch.neg, None, None), "exp": (torch.exp, -20, 20), "exp2": (torch.exp2, -20, 20),
    "expm1": (torch.expm1, -5, 5), "log": (torch.log, 1e-6, 50), "log2": (torch.log2, 1e-6, 50), "log10": (torch.log10, 1e-6, 50),
    "log1p": (torch.log1p, -0.99, 20), "sqrt": (torch.sqrt, 0, 100), "rsqrt": (torch.rsqrt, 1e-3, 100), "sin": (torch.sin, -50, 50),
    "cos": (torch.cos, -50, 50), "tan": (torch.tan, -1.4, 1.4), "asin": (torch.asin, -1, 1), "acos": (torch.acos, -1, 1),
    "atan": (torch.atan, -30, 30), "sinh": (torch.sinh, -5, 5), "cosh": (torch.cosh, -5, 5), "tanh": (torch.tanh, -6, 6),
    "asinh": (torch.asinh, -30, 30), "acosh": (torch.acosh, 1, 30), "atanh": (torch.atanh, -0.99, 0.99), "erf": (torch.erf, -4, 4),
    "erfc": (torch.erfc, -4, 4), "sigmoid": (torch.sigmoid, -20, 20), "reciprocal": (torch.reciprocal, 0.1, 10),
    "square": (torch.square, None, None), "floor": (torch.floor, -9, 9), "ceil": (torch.ceil, -9, 9), "round": (torch.round, -9, 9),
    "trunc": (torch.trunc, -9, 9), "frac": (torch.frac, -9, 9), "sign": (torch.sign, None, None), "sgn": (torch.sgn, None, None),
    "relu": (F.relu, None, None), "relu6": (F.relu6, -9, 9), "silu": (F.silu, -9, 9), "gelu": (F.gelu, -5, 5),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), -5, 5), "elu": (lambda x: F.elu(x, 1.3), -5, 5), "selu": (F.selu, -5, 5),
    "celu": (lambda x: F.celu(x, 0.7), -5, 5), "leaky_relu": (lambda x: F.leaky_relu(x, 0.2), -5, 5), "softplus": (F.softplus, -25, 25),
    "softsign": (F.softsign, -9, 9), "hardtanh": (F.hardtanh, -3, 3), "hardsigmoid": (F.hardsigmoid, -5, 5),
    "hardswish": (F.hardswish, -5, 5), "mish": (F.mish, -9, 9), "logsigmoid": (F.logsigmoid, -20, 20), "tanhshrink": (F.tanhshrink, -3, 3),
    "hardshrink": (F.hardshrink, -2, 2), "softshrink": (F.softshrink, -2, 2), "threshold": (lambda x: F.threshold(x, 0.3, -1.0), -2, 2),
    "logit": (lambda x: torch.logit(x, eps=1e-3), 0, 1), "lgamma": (torch.lgamma, 0.2, 20), "erfinv": (torch.erfinv, -0.99, 0.99),
    "deg2rad": (torch.deg2rad, -360, 360), "isnan": (torch.isnan, None, None), "nan_to_num": (torch.nan_to_num, None, None),
}
for name, (function, low, high) in UNARY.items():
    op(f"unary_{name}", function, lambda low=low, high=high: (rand(7, 41, low=low, high=high),))

# Groups of functions in one program for the other dtypes: fewer compilations, the same coverage.
GROUPS = {
    "exponential": ("exp", "exp2", "expm1", "sigmoid", "tanh", "softplus", "erf"),
    "logarithm": ("log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal"),
    "trigonometric": ("sin", "cos", "tan", "asin", "acos", "atan"),
    "rounding": ("floor", "ceil", "round", "trunc", "frac", "sign", "abs", "neg"),
    "activation": ("relu", "silu", "gelu", "gelu_tanh", "elu", "leaky_relu", "hardswish", "hardsigmoid", "mish"),
}
for group, names in GROUPS.items():
    low = max((UNARY[n][1] for n in names if UNARY[n][1] is not None))
    high = min((UNARY[n][2] for n in names if UNARY[n][2] is not None))
    for dtype, tag in ((F64, "f64"), (F16, "f16"), (BF16, "bf16")):
        op(f"{group}_{tag}", lambda x, names=names: tuple(UNARY[n][0](x) for n in names),
           lambda low=low, high=high, dtype=dtype: (rand(5, 37, dtype=dtype, low=low, high=high),))
for group, names in {"one": ("abs", "neg", "exp", "log", "sqrt", "sin", "tanh", "sigmoid"), "two": ("floor", "round", "sign", "relu", "elu", "isnan",
                     "reciprocal", "erf"), "three": ("hardtanh", "leaky_relu", "expm1", "log1p", "atan", "rsqrt", "nan_to_num")}.items():
    op(f"special_values_{group}", lambda x, names=names: tuple(UNARY[n][0](x) for n in names), lambda: (special(),))

# Two operands
BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum, "minimum": torch.minimum,
    "fmod": torch.fmod, "remainder": torch.remainder, "atan2": torch.atan2, "hypot": torch.hypot, "copysign": torch.copysign,
    "floor_divide": torch.floor_divide, "div_floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "div_trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"), "fmax": torch.fmax, "fmin": torch.fmin,
    "logaddexp": torch.logaddexp, "xlogy": lambda x, y: torch.xlogy(x, y.abs()), "heaviside": torch.heaviside,
}
for name, function in BINARY.items():
    op(f"binary_{name}", function, lambda: (rand(6, 23), rand(6, 23)))
ARITHMETIC = lambda x, y: (x + y, x - y, x * y, x / y, torch.maximum(x, y), torch.minimum(x, y))
COMPARE = lambda x, y: (x == y, x != y, x < y, x <= y, x > y, x >= y)
for dtype, tag in ((F64, "f64"), (F16, "f16"), (BF16, "bf16"), (I64, "i64"), (I32, "i32"), (I16, "i16"), (I8, "i8"), (U8, "u8")):
    low = 1 if dtype is U8 else None
    op(f"arithmetic_{tag}", ARITHMETIC, lambda dtype=dtype, low=low: (rand(4, 19, dtype=dtype, low=low), rand(4, 19, dtype=dtype, low=1, high=9)))
    op(f"compare_{tag}", COMPARE, lambda dtype=dtype, low=low: (rand(50, dtype=dtype, low=low), rand(50, dtype=dtype, low=low)))
op("compare_f32_special", COMPARE, lambda: (special(), special().flip(0)))
op("compare_scalar", lambda x: (x > 0, x <= 0.5, x == 1, x != 0), lambda: (special(),))
op("minmax_special", lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y), torch.fmin(x, y)), lambda: (special(), special().flip(0)))
op("integer_division", lambda x, y: (x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), x / y),
   lambda: (rand(64, dtype=I64, low=-20, high=20), torch.tensor([-7, -3, -2, -1, 1, 2, 3, 7] * 8)))
op("integer_division_i32", lambda x, y: (x // y, x % y, torch.fmod(x, y)), lambda: (rand(64, dtype=I32, low=-20, high=20), torch.tensor([-7, -3, -1, 4] * 16, dtype=I32)))
op("float_division", lambda x, y: (x // y, x % y, torch.fmod(x, y)), lambda: (rand(64, low=-20, high=20), torch.tensor([-7.5, -3.0, -0.5, 4.0] * 16)))
op("integer_wrap", lambda x: (x + 1, x * 3, -x, x.abs()), lambda: (torch.tensor([2**31 - 1, -(2**31), 0, 5, -5], dtype=I32),))
op("bitwise", lambda x, y: (x & y, x | y, x ^ y, ~x, x << 2, x >> 1), lambda: (rand(33, dtype=I64), rand(33, dtype=I64)))
op("bitwise_i32", lambda x, y: (x & y, x | y, x ^ y, ~x), lambda: (rand(33, dtype=I32), rand(33, dtype=I32)))
op("bitwise_bool", lambda x, y: (x & y, x | y, x ^ y, ~x), lambda: (rand(33, dtype=BOOL), rand(33, dtype=BOOL)))
op("shift_tensor", lambda x, y: (x << y, x >> y), lambda: (rand(20, dtype=I32), rand(20, dtype=I32, low=0, high=6)))
op("logical", lambda x, y: (torch.logical_and(x, y), torch.logical_or(x, y), torch.logical_xor(x, y), torch.logical_not(x)), lambda: (rand(4, 9, dtype=I32, low=0, high=3), rand(4, 9)))
op("integer_abs_sign", lambda x: (x.abs(), x.sign(), -x, x.clamp(-3, 4), x * x, x.bitwise_not()), lambda: (rand(31, dtype=I64),))
op("integer_pow_of_integers", torch.pow, lambda: (rand(5, 40, dtype=I64), torch.arange(40)))
op("integer_pow", lambda x: (x**2, x**3, x**0), lambda: (rand(31, dtype=I64),))

# Scalars, power, clamp, where
op("scalar_right", lambda x: (x + 1, x - 2.5, x * 3, x / 4, x // 2, x % 3), lambda: (rand(9, 11),))
op("scalar_left", lambda x: (1 + x, 2.5 - x, 3 * x, 4 / x, torch.rsub(x, 2.0)), lambda: (rand(9, 11, low=0.5, high=3),))
op("scalar_alpha", lambda x, y: (torch.add(x, y, alpha=2), torch.sub(x, y, alpha=0.5), torch.add(x, 3, alpha=2)), lambda: (rand(9, 11), rand(9, 11)))
op("scalar_promotes", lambda x: (x + 1.5, x * 2, x / 2, x > 1.5, x.sqrt()), lambda: (rand(21, dtype=I32, low=0),))
op("scalar_bf16", lambda x: (x + 1, x * 0.3, x / 7, x - 2), lambda: (rand(21, dtype=BF16),))
op("pow_scalar", lambda x: (x**2, x**3, x**0.5, x**-1, x**1.7, x**0, x**1), lambda: (rand(5, 13, low=0.1, high=4),))
op("pow_negative_base", lambda x: (x**2, x**3, x**-2), lambda: (rand(5, 13),))
op("pow_tensor", torch.pow, lambda: (rand(5, 13, low=0.1, high=4), rand(5, 13)))
op("pow_base_scalar", lambda x: (2**x, torch.pow(0.5, x)), lambda: (rand(5, 13),))
op("pow_special", lambda x: (x**2, x**0.5, x**-1, x**3), lambda: (special(),))
op("clamp", lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0), x.clamp(max=0.2), x.clip(0.1, 0.3)), lambda: (rand(8, 21),))
op("clamp_tensor", lambda x, a, b: (torch.clamp(x, a, b), torch.clamp(x, min=a)), lambda: (rand(8, 21), rand(21, low=-1, high=0), rand(8, 1, low=0, high=1)))
op("clamp_nan", lambda x: (x.clamp(-1, 1), x.clamp(min=0)), lambda: (special(),))
op("where", lambda c, x, y: (torch.where(c, x, y), torch.where(c, x, 0.0), torch.where(x > 0, 1.0, y)), lambda: (rand(6, 7, dtype=BOOL), rand(6, 7), rand(6, 7)))
op("where_broadcast", torch.where, lambda: (rand(6, 1, dtype=BOOL), rand(7), rand(3, 6, 7)))
op("where_promotes", lambda c, x, y: torch.where(c, x, y), lambda: (rand(9, dtype=BOOL), rand(9, dtype=I64), rand(9)))
op("masked_fill", lambda x, m: (x.masked_fill(m, -1.5), x.masked_fill(m, float("-inf")), x.masked_fill(m, 0)), lambda: (rand(6, 7), rand(6, 7, dtype=BOOL)))
op("masked_fill_tensor", lambda x, m, v: x.masked_fill(m, v), lambda: (rand(4, 6, 7), rand(6, 1, dtype=BOOL), torch.tensor(2.5)))
op("lerp", lambda x, y, w: (torch.lerp(x, y, 0.3), torch.lerp(x, y, w)), lambda: (rand(5, 9), rand(5, 9), rand(5, 9, low=0, high=1)))
op("addcmul_addcdiv", lambda x, y, z: (torch.addcmul(x, y, z, value=0.5), torch.addcdiv(x, y, z, value=0.5)), lambda: (rand(5, 9), rand(5, 9), rand(5, 9, low=0.5, high=2)))
op("prelu", lambda x, w: F.prelu(x, w), lambda: (rand(2, 5, 9), rand(5)))
op("glu", lambda x: F.glu(x, 1), lambda: (rand(3, 8, 5),))

# Broadcasting and layouts
op("broadcast_row", torch.add, lambda: (rand(13, 29), rand(29)))
op("broadcast_column", torch.mul, lambda: (rand(13, 29), rand(13, 1)))
op("broadcast_both", torch.sub, lambda: (rand(13, 1), rand(1, 29)))
op("broadcast_rank", torch.add, lambda: (rand(2, 3, 1, 5), rand(4, 1)))
op("broadcast_scalar_tensor", lambda x, y: x * y + y, lambda: (rand(13, 29), torch.tensor(1.5)))
op("broadcast_0d", lambda x, y: (x + y, x * 2), lambda: (torch.tensor(2.0), torch.tensor(3.0)))
op("broadcast_three", lambda x, y, z: x * y + z, lambda: (rand(4, 1, 6), rand(5, 1), rand(4, 5, 6)))
op("promote_dtypes", lambda a, b, c, d: (a + b, b + c, a * d, c / d, a + c), lambda: (rand(12, dtype=I32), rand(12), rand(12, dtype=F64), rand(12, dtype=BOOL)))
op("promote_half", lambda a, b, c: (a + b, a + c, b * c), lambda: (rand(12, dtype=F16), rand(12, dtype=BF16), rand(12)))
op("promote_0d", lambda a, b: (a + b, a * b), lambda: (rand(12, dtype=I32), torch.tensor(2.5)))
op("input_transposed", lambda x, y: x * 2 + y, lambda: (rand(9, 14).t(), rand(14, 9)))
op("transposed_operand", lambda x, y: x.t() + y, lambda: (rand(21, 34), rand(34, 21)))
op("permuted_operand", lambda x, y: x.permute(2, 0, 1) * y, lambda: (rand(5, 6, 7), rand(7, 5, 6)))
op("strided_operand", lambda x, y: x[::2, 1::3] + y, lambda: (rand(12, 20), rand(6, 7)))
op("expanded_operand", lambda x, y: x.expand(5, 6, 7) - y, lambda: (rand(6, 1), rand(5, 6, 7)))
op("unit_dim_stride", lambda x: x * 2, lambda: (rand(4, 8, 8)[:, None],))
op("chain", lambda x, y: ((x + y).tanh() * x.sigmoid() - y.abs().sqrt()).exp() / (1 + x * x), lambda: (rand(31, 65), rand(31, 65)))
for size in (0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 1000, 70001):
    op(f"size_{size}", lambda x, y: (x * y + 1).relu(), lambda size=size: (rand(size), rand(size)))
op("size_0_rows", lambda x: (x * 2, x.sum(0)), lambda: (rand(0, 5),))
op("size_0d", lambda x: x.exp() + 1, lambda: (torch.tensor(0.5),))
op("rank_6", lambda x, y: x + y, lambda: (rand(2, 3, 1, 2, 3, 5), rand(3, 4, 2, 1, 5)))

# Conversions and creation
FLOATS = lambda x: (x.to(F64), x.to(F16), x.to(BF16), x.float())
op("to_floats_f32", FLOATS, lambda: (rand(6, 15),))
op("to_floats_f16", FLOATS, lambda: (rand(6, 15, dtype=F16),))
op("to_floats_bf16", FLOATS, lambda: (rand(6, 15, dtype=BF16),))
op("to_floats_i64", FLOATS, lambda: (rand(6, 15, dtype=I64),))
op("to_floats_bool", FLOATS, lambda: (rand(6, 15, dtype=BOOL),))
op("to_integers_f32", lambda x: (x.to(I64), x.to(I32), x.to(I16), x.to(I8), x.to(BOOL)), lambda: (rand(6, 15, low=-100, high=100),))
op("to_integers_i64", lambda x: (x.to(I32), x.to(I16), x.to(I8), x.to(U8), x.to(BOOL)), lambda: (rand(6, 15, dtype=I64, low=-1000, high=1000),))
op("to_integers_bf16", lambda x: (x.to(I64), x.to(I32), x.to(BOOL)), lambda: (rand(6, 15, dtype=BF16, low=-100, high=100),))
op("to_bool_special", lambda x: (x.bool(), x.isinf(), x.isnan(), x.isfinite()), lambda: (special(),))
op("bf16_chain", lambda x, y: ((x + y) * x - y).sigmoid() * y, lambda: (rand(9, 33, dtype=BF16), rand(9, 33, dtype=BF16)))
op("f16_special", lambda x: (x * 2, x + 1, x.exp()), lambda: (special(F16),))
op("bf16_special", lambda x: (x * 2, x + 1, x.exp()), lambda: (special(BF16),))
op("bf16_mixed", lambda x, y: (x.float() * y).to(BF16) + x, lambda: (rand(9, 33, dtype=BF16), rand(9, 33)))
op("type_as", lambda x, y: (x.type_as(y), y.to(x.dtype)), lambda: (rand(9), rand(9, dtype=I32)))
op("full_like", lambda x: (torch.zeros_like(x), torch.ones_like(x) * 2, torch.full_like(x, 1.5), torch.zeros(3, 4), torch.ones(2), torch.full((2, 2), 7)), lambda: (rand(4, 5),))
op("new_full", lambda x: (x.new_zeros(3), x.new_ones((2, 2)), x.new_full((3,), 2.5), x + torch.scalar_tensor(3.0)), lambda: (rand(4, 5),))
op("arange", lambda x: (torch.arange(7), torch.arange(2, 9, 3), torch.arange(0.0, 1.0, 0.1), x + torch.arange(5)), lambda: (rand(4, 5),))
op("linspace", lambda x: (torch.linspace(0, 1, 11), x * torch.linspace(-1, 1, 5)), lambda: (rand(4, 5),))
op("eye_tri", lambda x: (torch.eye(4), x + torch.eye(5), torch.ones(4, 4).tril()), lambda: (rand(5, 5),))

# Dynamic sizes
N, M = Dim("n", min=1, max=4096), Dim("m", min=1, max=100)
two = lambda n, m: lambda: (rand(n, m), rand(m))
op("dynamic_pointwise", lambda x, y: (x + y).tanh() * 2, two(5, 6), dynamic=({0: N, 1: M}, {0: M}),
   sets={"n1_m1": two(1, 1), "n1_m100": two(1, 100), "n4096_m3": two(4096, 3), "n33_m17": two(33, 17)})
one = lambda n: lambda: (rand(n),)
op("dynamic_vector", lambda x: x.exp() / (1 + x.exp()), one(10), dynamic=({0: N},), sets={f"n{n}": one(n) for n in (1, 2, 15, 16, 17, 4096)})
op("dynamic_size_value", lambda x: (x * x.shape[0], x + torch.arange(x.shape[0]), x.sum() / x.shape[0]), one(10), dynamic=({0: N},), sets={f"n{n}": one(n) for n in (1, 7, 100)})
op("dynamic_full", lambda x: x + torch.ones(x.shape[0] + 1, 1), one(10), dynamic=({0: N},), sets={f"n{n}": one(n) for n in (1, 7)})
