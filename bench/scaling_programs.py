"""Programs of n nodes, of every shape that a compiler may find hard: chains, diamonds, nests, fans, formulas. For compile_scaling.py and the tests."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/models"))
from written_program import Graph, Program, Size, count  # noqa: E402, F401 (the other files have Graph and Size from here)

SHAPES = {}  # name -> function of n that makes a Program of about n nodes


def shape(function):
    SHAPES[function.__name__] = function
    return function


def unary(p, op, x):
    return p.op(f"aten.{op}.default", x.sizes, x.dtype, self=x)


def binary(p, op, x, y, dtype=None):
    scalar = not hasattr(y, "name")
    if scalar and op in ("add", "sub", "mul"):
        return p.op(f"aten.{op}.Scalar", x.sizes, dtype or x.dtype, self=x, other=y)
    return p.op(f"aten.{op}.{'Scalar' if scalar else 'Tensor'}", x.sizes, dtype or x.dtype, self=x, other=y)


def closed(p, *results):
    for r in results:
        p.output(r)
    return p


def chain_of(count, step):
    """step(program, value, number) of its own result, so many times."""
    p = Program()
    x = p.input(4, 8)
    for i in range(count):
        x = step(p, x, i)
    return closed(p, x)


@shape
def relu_chain(n):
    return chain_of(n, lambda p, x, _: unary(p, "relu", x))


@shape
def unary_mix(n):
    """Dear functions, so that bodies are cut at other places."""
    functions = ("sin", "tanh", "sigmoid", "neg", "abs", "exp", "erf")
    return chain_of(n, lambda p, x, i: unary(p, functions[i % 7], x))


@shape
def diamonds(n):
    """x = sin(x) + cos(x): a tree of 2^n leaves if anybody takes it for one."""
    return chain_of(n // 3, lambda p, x, _: binary(p, "add", unary(p, "sin", x), unary(p, "cos", x)))


@shape
def cheap_diamonds(n):
    return chain_of(n // 3, lambda p, x, _: binary(p, "sub", unary(p, "neg", x), unary(p, "relu", x)))


@shape
def fibonacci(n):
    p = Program()
    a = p.input(4, 8)
    b = unary(p, "relu", a)
    for _ in range(n):
        a, b = b, binary(p, "add", a, b)
    return closed(p, b)


@shape
def where_nest(n):
    p = Program()
    x, y = p.input(4, 8), p.input(4, 8)
    for _ in range(n // 2):
        c = binary(p, "gt", x, 0.25, "bool")
        x = p.op("aten.where.self", x.sizes, condition=c, self=x, other=y)
    return closed(p, x)


@shape
def where_diamonds(n):
    p = Program()
    x = p.input(4, 8)
    for _ in range(n // 4):
        c = binary(p, "gt", x, 0.25, "bool")
        x = p.op("aten.where.self", x.sizes, condition=c, self=binary(p, "mul", x, 0.5), other=binary(p, "add", x, 0.125))
    return closed(p, x)


@shape
def same_choices(n):
    """Choices between equal values: they fold away as they are joined, so that all of it is one loop."""
    p = Program()
    x, c = p.input(4, 8), p.input(4, 8, dtype="bool")
    for _ in range(n // 2):
        x = p.op("aten.where.self", x.sizes, condition=c, self=binary(p, "mul", x, 1.0), other=x)
    return closed(p, unary(p, "sin", x))


@shape
def one_condition(n):
    p = Program()
    x, y = p.input(4, 8), p.input(4, 8)
    c = binary(p, "gt", y, 0.25, "bool")
    for _ in range(n // 2):
        x = p.op("aten.where.self", x.sizes, condition=c, self=unary(p, "sin", x), other=x)
    return closed(p, x)


@shape
def coprime_reshapes(n):
    """Reshapes between sizes without a common factor, transposed in between: indices of nested divisions."""
    p = Program()
    sizes = [(7, 30), (11 * 3, 14), (5, 42), (35, 6), (2, 105), (15, 14), (10, 21)]
    x = p.input(7, 30)
    total = 7 * 30
    for i in range(n // 2):
        a = sizes[i % len(sizes)][0]
        a = a if total % a == 0 else 10
        x = p.op("aten.reshape.default", [a, total // a], self=x, shape=[a, total // a])
        x = p.op("aten.permute.default", [total // a, a], self=x, dims=[1, 0])
    return closed(p, unary(p, "relu", x))


@shape
def coprime_reshapes_3d(n):
    p = Program()
    forms = [(3, 10, 77), (7, 11, 30), (2, 35, 33), (5, 14, 33), (11, 6, 35), (22, 15, 7)]
    x = p.input(2310)
    for i in range(n // 2):
        s = list(forms[i % len(forms)])
        x = p.op("aten.reshape.default", s, self=x, shape=s)
        order = [(2, 0, 1), (1, 2, 0), (2, 1, 0), (0, 2, 1)][i % 4]
        x = p.op("aten.permute.default", [s[d] for d in order], self=x, dims=list(order))
    return closed(p, unary(p, "relu", x))


@shape
def flips_and_rolls(n):
    p = Program()
    x = p.input(30, 7)
    for i in range(n):
        if i % 2:
            x = p.op("aten.flip.default", x.sizes, self=x, dims=[i // 2 % 2])
        else:
            x = p.op("aten.roll.default", x.sizes, self=x, shifts=[3 + i % 5], dims=[i // 2 % 2])
    return closed(p, unary(p, "relu", x))


@shape
def slices_and_pads(n):
    p = Program()
    x = p.input(30, 8)
    for _ in range(n // 2):
        x = p.op("aten.slice.Tensor", [29, 8], self=x, dim=0, start=1, end=30)
        x = p.op("aten.constant_pad_nd.default", [30, 8], self=x, pad=[0, 0, 0, 1], value=0.5)
    return closed(p, unary(p, "relu", x))


@shape
def expands(n):
    p = Program()
    x = p.input(4, 8)
    for _ in range(n // 4):
        x = p.op("aten.unsqueeze.default", [1, 4, 8], self=x, dim=0)
        x = p.op("aten.expand.default", [3, 4, 8], self=x, size=[3, 4, 8])
        x = p.op("aten.select.int", [4, 8], self=x, dim=0, index=1)
        x = binary(p, "add", x, 1.0)
    return closed(p, x)


@shape
def unfolds(n):
    p = Program()
    x = p.input(40)
    for _ in range(n // 2):
        x = p.op("aten.unfold.default", [39, 2], self=x, dimension=0, size=2, step=1)
        x = p.op("aten.reshape.default", [78], self=x, shape=[78])
        x = p.op("aten.slice.Tensor", [40], self=x, dim=0, start=3, end=43)
    return closed(p, unary(p, "relu", x))


@shape
def select_scatters(n):
    p = Program()
    x, y = p.input(16, 8), p.input(8)
    for i in range(n):
        x = p.op("aten.select_scatter.default", x.sizes, self=x, src=y, dim=0, index=i % 16)
    return closed(p, x)


@shape
def slice_scatters(n):
    p = Program()
    x = p.input(16, 8)
    for i in range(n // 3):
        y = unary(p, "sin", p.op("aten.slice.Tensor", [4, 8], self=x, dim=0, start=i % 12, end=i % 12 + 4))
        x = p.op("aten.slice_scatter.default", x.sizes, self=x, src=y, dim=0, start=(i + 3) % 12, end=(i + 3) % 12 + 4)
    return closed(p, x)


@shape
def index_puts(n):
    p = Program()
    x, y, at = p.input(16, 8), p.input(3, 8), p.input(3, dtype="i64")
    for i in range(n):
        x = p.op("aten.index_put.default", x.sizes, self=x, indices=[at], values=y, accumulate=bool(i % 2))
    return closed(p, x)


@shape
def writes_in_place(n):
    """Views of a tensor that are written to, as generation loops do."""
    p = Program()
    x = unary(p, "neg", p.input(16, 8))
    for i in range(n // 2):
        row = p.op("aten.select.int", [8], self=x, dim=0, index=i % 16)
        p.op("aten.add_.Scalar", [8], self=row, other=1.0)
    return closed(p, x)


@shape
def cats(n):
    """Concatenations of concatenations."""
    p = Program()
    x = p.input(8, 8)
    for i in range(n // 3):
        low = p.op("aten.slice.Tensor", [4, 8], self=x, dim=0, start=2, end=6)
        x = p.op("aten.cat.default", [8, 8], tensors=[unary(p, "sin", low), low], dim=0)
    return closed(p, x)


@shape
def norms(n):
    def step(p, x, _):
        m = p.op("aten.mean.dim", [4, 1], self=x, dim=[1], keepdim=True)
        return p.op("aten.sub.Tensor", [4, 8], self=unary(p, "sin", x), other=m)

    return chain_of(n // 3, step)


@shape
def softmaxes(n):
    return chain_of(n, lambda p, x, _: p.op("aten.softmax.int", [4, 8], self=x, dim=1))


@shape
def scans_and_sorts(n):
    return chain_of(n, lambda p, x, i: p.op("aten.cumsum.default", [4, 8], self=x, dim=i % 2))


@shape
def products(n):
    p = Program()
    x, w = p.input(4, 8), p.constant(np.eye(8, dtype=np.float32))
    for _ in range(n // 2):
        x = unary(p, "relu", p.op("aten.mm.default", [4, 8], self=x, mat2=w))
    return closed(p, x)


@shape
def layers(n):
    """A deep network of weights of its own: what real programs look like."""
    p = Program()
    x = p.input(4, 8)
    for i in range(n // 4):
        w = p.constant(np.eye(8, dtype=np.float32) + i % 7)
        y = unary(p, "relu", p.op("aten.mm.default", [4, 8], self=x, mat2=w))
        x = p.op("aten.layer_norm.default", [4, 8], input=p.op("aten.add.Tensor", [4, 8], self=x, other=y), normalized_shape=[8])
    return closed(p, x)


@shape
def gathers(n):
    p = Program()
    x, at = p.input(16, 8), p.input(16, dtype="i64")
    for _ in range(n):
        x = p.op("aten.index_select.default", [16, 8], self=x, dim=0, index=at)
    return closed(p, x)


@shape
def readers(n):
    """One value with n readers, joined in a tree."""
    p = Program()
    x = p.input(4, 8)
    return closed(p, joined(p, [binary(p, "mul", x, 0.5 + i / n) for i in range(n // 2)]))


def joined(p, values):
    while len(values) > 1:
        values = [binary(p, "add", *values[i:i + 2]) if i + 1 < len(values) else values[i] for i in range(0, len(values), 2)]
    return values[0]


@shape
def reader_outputs(n):
    p = Program()
    x = p.input(4, 8)
    return closed(p, *[binary(p, "mul", x, 0.5 + i / n) for i in range(n)])


@shape
def reader_sums(n):
    """n reductions of one value: siblings."""
    p = Program()
    x = p.input(4, 8)
    sums = [p.op("aten.sum.dim_IntList", [4], self=binary(p, "mul", x, 0.5 + i / n), dim=[1]) for i in range(n // 3)]
    return closed(p, joined(p, sums))


@shape
def running_total(n):
    """((y1 + y2) + y3) + ...: every value lives to its place in the sum."""
    p = Program()
    x = p.input(4, 8)
    parts = [unary(p, "sin", binary(p, "mul", x, 0.5 + i / n)) for i in range(n // 3)]
    total = parts[0]
    for part in parts[1:]:
        total = binary(p, "add", total, part)
    return closed(p, total)


@shape
def wide_cat(n):
    p = Program()
    x = p.input(4, 8)
    parts = [binary(p, "mul", x, 0.5 + i / n) for i in range(n)]
    return closed(p, p.op("aten.cat.default", [4 * n, 8], tensors=parts, dim=0))


@shape
def wide_stack(n):
    p = Program()
    x = p.input(4, 8)
    rows = [p.op("aten.select.int", [8], self=x, dim=0, index=i % 4) for i in range(n)]
    return closed(p, p.op("aten.stack.default", [n, 8], tensors=rows, dim=0))


@shape
def inputs_and_outputs(n):
    p = Program()
    return closed(p, *[unary(p, "relu", p.input(4, 8)) for _ in range(n)])


@shape
def constants(n):
    p = Program()
    x = p.input(4)
    for i in range(n):
        x = binary(p, "add", x, p.constant(np.full(4, i, np.float32)))
    return closed(p, x)


@shape
def constant_formulas(n):
    """What is folded: nothing of it depends on the input."""
    p = Program()
    c = p.constant(np.ones((4, 8), np.float32))
    for _ in range(n):
        c = unary(p, "sin", c)
    return closed(p, p.op("aten.add.Tensor", [4, 8], self=p.input(4, 8), other=c))


@shape
def convolutions(n):
    p = Program()
    x, w = p.input(1, 4, 6, 6), p.constant(np.ones((4, 4, 3, 3), np.float32))
    for _ in range(n // 2):
        x = p.op("aten.conv2d.default", x.sizes, input=x, weight=w, padding=[1, 1])
        x = unary(p, "relu", x)
    return closed(p, x)


@shape
def repeated(n):
    """The same node again and again: common subexpressions."""
    p = Program()
    x = p.input(4, 8)
    total = x
    for _ in range(n // 3):
        total = binary(p, "add", total, binary(p, "mul", unary(p, "sin", x), 0.5))
    return closed(p, total)


@shape
def unused(n):
    p = Program()
    x = y = p.input(4, 8)
    for _ in range(n):
        y = unary(p, "sin", y)
    return closed(p, unary(p, "relu", x))
