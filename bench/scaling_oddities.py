"""More programs of n nodes for compile_scaling.py: views, writes, indices, dynamic sizes, control flow, texts."""

from scaling_programs import Graph, Program, Size, binary, chain_of, closed, joined, shape, unary


def view(p, x, sizes):
    return p.op("aten.view.default", sizes, x.dtype, self=x, size=sizes)


def permuted(p, x, dims):
    return p.op("aten.permute.default", [x.sizes[d] for d in dims], x.dtype, self=x, dims=dims)


# ---- Lists of tensors
@shape
def lists(n):
    """A few operators, each of as many tensors as there can be."""
    p = Program()
    x = p.input(n // 4, 8)
    rows = p.ops("aten.unbind.int", [([8], "f32")] * (n // 4), self=x, dim=0)
    doubled = p.ops("aten._foreach_mul.Scalar", [([8], "f32")] * len(rows), self=rows, scalar=2.0)
    sums = p.ops("aten._foreach_add.List", [([8], "f32")] * len(rows), self=doubled, other=rows, alpha=1)
    return closed(p, p.op("aten.stack.default", [len(rows), 8], tensors=p.ops("aten._foreach_sin.default", [([8], "f32")] * len(rows), self=sums), dim=0))


@shape
def short_lists(n):
    """Many operators of four tensors, each of them a step of an optimizer."""
    p = Program()
    rows = [p.input(8) for _ in range(4)]
    for i in range(n // 8):
        rows = p.ops("aten._foreach_lerp.Scalar", [([8], "f32")] * 4, self=rows, tensors1=rows[1:] + rows[:1], weight=0.25)
        rows = p.ops("aten._foreach_neg.default", [([8], "f32")] * 4, self=rows)
    return closed(p, *rows)


# ---- Views and writes
@shape
def views_of_views(n):
    p = Program()
    x = p.input(4, 8)
    for i in range(n):
        x = p.op("aten.unsqueeze.default", [1, 4, 8], self=x, dim=0) if i % 2 == 0 else p.op("aten.squeeze.dim", [4, 8], self=x, dim=0)
    return closed(p, unary(p, "relu", x))


@shape
def dynamic_views(n):
    """Reshapes and transposes with sizes that no one knows."""
    p = Program()
    a, b = p.symbol("s0", 6), p.symbol("s1", 5)
    x = p.input(a, b, 6)
    forms = [[a, b * 2, 3], [a * 6, b], [b, a, 6], [a * b, 6], [a, b, 6], [b * 3, a * 2]]
    for i in range(n // 2):
        form = forms[i % len(forms)]
        x = p.op("aten.reshape.default", form, self=x, shape=form)
        x = permuted(p, x, list(range(len(form)))[::-1])
    return closed(p, unary(p, "relu", x))


@shape
def dynamic_slices(n):
    """Each a row shorter than the one before it, and padded again."""
    p = Program()
    s = p.symbol("s0", 9, least=4)
    x = p.input(s, 8)
    for _ in range(n // 2):
        x = p.op("aten.slice.Tensor", [s + -1, 8], self=x, dim=0, start=1, end=2**63 - 1)
        x = p.op("aten.constant_pad_nd.default", [s, 8], self=x, pad=[0, 0, 0, 1], value=0.5)
    return closed(p, unary(p, "relu", x))


@shape
def shrinking(n):
    """Of 2 n rows, one less each time."""
    p = Program()
    s = p.symbol("s0", 2 * n, least=2 * n)
    x = p.input(s, 2)
    for i in range(n // 2):
        x = unary(p, "sin", p.op("aten.slice.Tensor", [s + (-1 - i), 2], self=x, dim=0, start=1, end=2**63 - 1))
    return closed(p, x)


@shape
def strided_windows(n):
    p = Program()
    x = p.input(40)
    for i in range(n // 2):
        x = unary(p, "sin", x)
        x = p.op("aten.as_strided.default", [40], self=x, size=[40], stride=[1], storage_offset=0)
    return closed(p, x)


@shape
def diagonals(n):
    p = Program()
    x = p.input(6, 6)
    for i in range(n // 2):
        d = p.op("aten.diagonal.default", [6], self=x, offset=0, dim1=0, dim2=1)
        x = p.op("aten.diagonal_scatter.default", [6, 6], self=x, src=unary(p, "sin", d), offset=0, dim1=0, dim2=1)
    return closed(p, x)


@shape
def writes_by_name(n):
    """x = x.add_(1): each result is the same tensor by another name."""
    p = Program()
    x = unary(p, "neg", p.input(4, 8))
    for i in range(n):
        x = p.op("aten.add_.Scalar" if i % 2 else "aten.mul_.Scalar", [4, 8], self=x, other=1.5)
    return closed(p, x)


@shape
def writes_to_pieces(n):
    """Rows of one tensor, each of which is written."""
    p = Program()
    x = unary(p, "neg", p.input(n // 2, 8))
    for row in p.ops("aten.unbind.int", [([8], "f32")] * (n // 2), self=x, dim=0):
        p.op("aten.mul_.Scalar", [8], self=row, other=0.5)
    return closed(p, x)


@shape
def writes_through_views(n):
    """A view of a view of a view, and writes to the last one."""
    p = Program()
    x = unary(p, "neg", p.input(4, 8))
    y = x
    for i in range(min(n // 2, 30)):
        y = p.op("aten.transpose.int", y.sizes[::-1], self=y, dim0=0, dim1=1)
    for i in range(n // 2):
        p.op("aten.add_.Scalar", y.sizes, self=y, other=1.0)
    return closed(p, x)


@shape
def deep_view_written(n):
    """n views of views, then n writes: n * n nodes if each view is made again after each write."""
    p = Program()
    x = unary(p, "neg", p.input(4, 8))
    y = x
    for i in range(n // 2):
        y = p.op("aten.transpose.int", y.sizes[::-1], self=y, dim0=0, dim1=1)
    for i in range(n // 2):
        p.op("aten.add_.Scalar", y.sizes, self=y, other=1.0)
    return closed(p, x)


# ---- Indices
@shape
def index_chain(n):
    """Indices that were looked up themselves."""
    p = Program()
    table, at = p.input(16, dtype="i64"), p.input(16, dtype="i64")
    for _ in range(n):
        at = p.op("aten.index.Tensor", [16], "i64", self=table, indices=[at])
    return closed(p, at)


@shape
def index_readers(n):
    p = Program()
    table, at = p.input(16, 8), p.input(16, dtype="i64")
    parts = []
    for i in range(n // 3):
        rows = p.op("aten.index.Tensor", [16, 8], self=table, indices=[p.op("aten.remainder.Scalar", [16], "i64", self=binary(p, "add", at, i), other=16)])
        parts.append(rows)
    return closed(p, joined(p, parts))


@shape
def scatters(n):
    p = Program()
    x, y, at = p.input(16, 8), p.input(4, 8), p.input(4, 8, dtype="i64")
    for i in range(n):
        x = p.op(f"aten.{'scatter.src' if i % 2 else 'scatter_add.default'}", [16, 8], self=x, dim=0, index=at, src=y)
    return closed(p, x)


@shape
def embeddings(n):
    p = Program()
    table, at = p.input(16, 8), p.input(3, dtype="i64")
    parts = [p.op("aten.embedding.default", [3, 8], weight=table, indices=at) for _ in range(2)]
    for i in range(n // 2):
        parts.append(p.op("aten.embedding.default", [3, 8], weight=binary(p, "mul", table, i / n), indices=at))
    return closed(p, joined(p, parts))


# ---- Dynamic sizes
@shape
def dynamic_backward(n):
    p = Program()
    s = p.symbol("s0", 6)
    values = [p.input(s, 8)]
    for _ in range(n // 4):
        values.append(unary(p, "sin", p.op("aten.softmax.int", [s, 8], self=values[-1], dim=0)))
    g = p.input(s, 8)
    for y in reversed(values[1:]):
        g = binary(p, "mul", g, unary(p, "cos", y))
    return closed(p, g)


@shape
def kept_sizes(n):
    """Values of n different dynamic sizes, all of which are needed at the end."""
    p = Program()
    s = p.symbol("s0", 6)
    x, row = p.input(s, 8), p.input(1, 8)
    kept = []
    for i in range(n // 4):
        x = p.op("aten.cumsum.default", [s + (i + 1), 8], self=p.op("aten.cat.default", [s + (i + 1), 8], tensors=[x, row], dim=0), dim=0)
        kept.append(x)
    return closed(p, joined(p, [p.op("aten.sum.dim_IntList", [8], self=x, dim=[0]) for x in reversed(kept)]))


@shape
def sizes_as_numbers(n):
    """Tensors filled with sizes, of sizes that grow."""
    p = Program()
    s = p.symbol("s0", 6)
    x = p.input(s, 8)
    for i in range(n // 2):
        y = p.op("aten.full.default", [s, 8], size=[s, 8], fill_value=1.0 + i, dtype=None)
        x = p.op("aten.add.Tensor", [s, 8], self=x, other=y)
    return closed(p, unary(p, "sin", x))


@shape
def halved_sizes(n):
    """Sizes that are halved and doubled again: formulas in formulas."""
    p = Program()
    s = p.symbol("s0", 64, least=4)
    x = p.input(s, 8)
    length = s
    for i in range(n // 2):
        if i % 6 == 5:
            x = p.op("aten.cat.default", [length + length, 8], tensors=[x, x], dim=0)
            length = length + length
        else:
            half = length // 2 if i % 6 < 2 else length
            x = unary(p, "sin", p.op("aten.slice.Tensor", [half, 8], self=x, dim=0, start=0, end=half))
            length = half
        if i % 36 == 35:
            x, length = p.op("aten.cat.default", [s, 8], tensors=[p.input(s, 8)], dim=0), s
    return closed(p, x)


@shape
def symbols_alike(n):
    """Inputs of sizes that guards say are equal."""
    p = Program()
    parts = []
    n_inputs = min(n // 2, 9000)
    for i in range(n_inputs):
        x = p.input(p.symbol(f"s{i}", 3), 4)
        parts.append(p.op("aten.sum.dim_IntList", [4], self=x, dim=[0]))
        if i:
            p.guards.append(f"L['x{i - 1}'].size()[0] == L['x{i}'].size()[0] + {i % 2}")
    return closed(p, joined(p, parts))


@shape
def one_output_of_many_symbols(n):
    """A product of sums of sizes."""
    p = Program()
    x = p.input(p.symbol("s0", 2), 2)
    for i in range(1, min(n // 4, 24)):
        s = p.symbol(f"s{i}", 2)
        y = p.input(s, x.sizes[1])
        x = p.op("aten.cat.default", [s + x.sizes[0], x.sizes[1]], tensors=[x, y], dim=0)
        x = permuted(p, x, [1, 0])
    for i in range(n - min(n, 96)):
        x = unary(p, "sin", x)
    return closed(p, x)


@shape
def nonzeros(n):
    """Sizes that data decides, one after the other."""
    p = Program()
    x = p.input(6)
    for i in range(min(n // 3, 4000)):
        u = Size(f"Symbol('u{i}', integer=True)", 3)
        p.ranges[f"u{i}"] = {"min_val": 0, "max_val": None}
        at = p.op("aten.nonzero.default", [u, 1], "i64", self=binary(p, "gt", x, 0.25 + i / n, "bool"))
        p.output(p.op("aten.sum.default", [], "i64", self=at))
    return p


# ---- Control flow
def branch(p, x, i, body, names=("t", "f")):
    c = binary(p, "gt", p.op("aten.sum.default", [], self=x), 0.5, "bool")
    arms = []
    for name in names:
        g = Graph(f"{name}{i}")
        g.output(body(g, g.capture(x), name))
        arms.append(g)
    return p.op("higher_order.cond", x.sizes, x.dtype, _pred=c, _true=arms[0], _false=arms[1], _operands=[x])


@shape
def long_branches(n):
    """One choice between two long programs."""
    p = Program()

    def body(g, x, name):
        for _ in range(n // 2):
            x = unary(g, "sin" if name == "t" else "tanh", x)
        return x

    return closed(p, branch(p, p.input(4, 8), 0, body))


@shape
def many_captures(n):
    p = Program()
    values = [unary(p, "sin", p.input(4, 8)) for _ in range(n // 4)]
    c = binary(p, "gt", p.op("aten.sum.default", [], self=values[0]), 0.5, "bool")
    arms = []
    for name in "tf":
        g = Graph(name)
        inside = [g.capture(v) for v in values]
        g.output(joined(g, inside if name == "t" else inside[::-1]))
        arms.append(g)
    return closed(p, p.op("higher_order.cond", [4, 8], _pred=c, _true=arms[0], _false=arms[1], _operands=values))


@shape
def while_loops(n):
    p = Program()
    x, i = p.input(4, 8), p.input(dtype="i64")
    for k in range(n // 6):
        condition, body = Graph(f"c{k}"), Graph(f"b{k}")
        at, _ = condition.capture(i), condition.capture(x)
        condition.output(binary(condition, "lt", at, 3 + k, "bool"))
        at, y = body.capture(i), body.capture(x)
        body.output(binary(body, "add", at, 1))
        body.output(unary(body, "sin", y))
        _, x = p.ops("higher_order.while_loop", [([], "i64"), ([4, 8], "f32")], False, _cond=condition, _body=body, _carried=[i, x], _more=[])
    return closed(p, x)


@shape
def states_of_one(n):
    """A state that is written n times, and read after each."""
    import numpy as np

    p = Program()
    x, b = p.input(4), p.state(np.zeros(4, np.float32))
    for i in range(n // 2):
        p.op("aten.add_.Tensor", [4], self=b, other=x)
        x = binary(p, "mul", x, b)
    return closed(p, x)


@shape
def randoms(n):
    return chain_of(n // 2, lambda p, x, _: binary(p, "add", x, p.op("aten.rand_like.default", [4, 8], self=x)))
