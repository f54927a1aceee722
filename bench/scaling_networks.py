"""More programs of n nodes for compile_scaling.py: networks and their gradients, where values are used much later; many readers, inputs, pieces; other types."""

import numpy as np

from scaling_programs import Program, binary, chain_of, closed, joined, shape, unary


def product(p, x, w):
    return p.op("aten.mm.default", [x.sizes[0], w.sizes[1]], self=x, mat2=w)


def reduced(p, op, x, dims, keep=True):
    sizes = [1 if d in dims else s for d, s in enumerate(x.sizes)] if keep else [s for d, s in enumerate(x.sizes) if d not in dims]
    return p.op(f"aten.{op}", sizes, self=x, dim=list(dims), keepdim=keep)


@shape
def backward_pointwise(n):
    """A chain and its gradient: each value is used twice, the second time in reverse order."""
    p = Program()
    values = [p.input(4, 8)]
    for _ in range(n // 4):
        values.append(unary(p, "tanh", values[-1]))
    g = p.input(4, 8)
    for y in reversed(values[1:]):
        square = binary(p, "mul", y, y)
        g = binary(p, "mul", g, p.op("aten.rsub.Scalar", y.sizes, self=square, other=1.0))
    return closed(p, values[-1], g)


@shape
def backward_layers(n):
    """Linear layers with relu, and the gradients of all weights, each an output."""
    p = Program()
    x, layers = p.input(4, 8), []
    for i in range(n // 8):
        w = p.constant(np.eye(8, dtype=np.float32) * (1 + i % 3))
        y = unary(p, "relu", product(p, x, w))
        layers.append((x, w, y))
        x = y
    g = unary(p, "sin", x)
    for x, w, y in reversed(layers):
        g = p.op("aten.where.self", y.sizes, condition=binary(p, "gt", y, 0.0, "bool"), self=g, other=binary(p, "mul", g, 0.0))
        p.output(p.op("aten.mm.default", [8, 8], self=p.op("aten.t.default", [8, 4], self=x), mat2=g))
        g = product(p, g, p.op("aten.t.default", [8, 8], self=w))
    return closed(p, g)


@shape
def backward_norms(n):
    """Rows' means and what needs them again, much later."""
    p = Program()
    x, kept = p.input(4, 8), []
    for _ in range(n // 7):
        y = unary(p, "sin", binary(p, "sub", x, reduced(p, "mean.dim", x, [1])))
        kept.append(y)
        x = y
    g = p.input(4, 8)
    for y in reversed(kept):
        g = binary(p, "mul", y, binary(p, "sub", g, reduced(p, "mean.dim", binary(p, "mul", g, y), [1])))
    return closed(p, g)


@shape
def skips(n):
    """Down and up again, joined to what was there on the way down."""
    p = Program()
    x, down = p.input(4, 8), []
    for _ in range(n // 4):
        x = unary(p, "sin", x)
        down.append(x)
    for y in reversed(down):
        both = p.op("aten.cat.default", [4, 16], tensors=[x, y], dim=1)
        x = unary(p, "tanh", p.op("aten.slice.Tensor", [4, 8], self=both, dim=1, start=4, end=12))
    return closed(p, x)


@shape
def dense_blocks(n):
    """Each value is made of the eight before it."""
    p = Program()
    values = [p.input(4, 8)]
    for _ in range(n // 2):
        last = values[-8:]
        both = p.op("aten.cat.default", [4, 8 * len(last)], tensors=last, dim=1)
        values.append(reduced(p, "amax.default", p.op("aten.reshape.default", [4, len(last), 8], self=both, shape=[4, len(last), 8]), [1], False))
    return closed(p, values[-1])


@shape
def attention(n):
    p = Program()
    x, weights = p.input(1, 2, 8, 16), [p.constant(np.eye(16, dtype=np.float32)) for _ in range(3)]
    for _ in range(n // 6):
        q, k, v = (p.op("aten.matmul.default", [1, 2, 8, 16], self=x, other=w) for w in weights)
        y = p.op("aten.scaled_dot_product_attention.default", [1, 2, 8, 16], query=q, key=k, value=v)
        x = p.op("aten.layer_norm.default", [1, 2, 8, 16], input=p.op("aten.add.Tensor", [1, 2, 8, 16], self=x, other=y), normalized_shape=[16])
    return closed(p, x)


@shape
def recurrent(n):
    """The steps of a gated cell, written out."""
    p = Program()
    h, c, w = p.input(4, 8), p.input(4, 8), p.constant(np.ones((8, 32), np.float32))
    for _ in range(n // 10):
        gates = p.ops("aten.split.Tensor", [([4, 8], "f32")] * 4, self=product(p, h, w), split_size=8, dim=1)
        i, f, o = (unary(p, "sigmoid", g) for g in gates[:3])
        c = binary(p, "add", binary(p, "mul", f, c), binary(p, "mul", i, unary(p, "tanh", gates[3])))
        h = binary(p, "mul", o, unary(p, "tanh", c))
    return closed(p, h, c)


@shape
def pools_and_resizes(n):
    p = Program()
    x = p.input(1, 3, 8, 8)
    for _ in range(n // 2):
        x = p.op("aten.avg_pool2d.default", [1, 3, 4, 4], self=x, kernel_size=[2, 2])
        x = p.op("aten.upsample_nearest2d.default", [1, 3, 8, 8], self=x, output_size=[8, 8])
    return closed(p, x)


@shape
def max_pools(n):
    def step(p, x, _):
        return p.op("aten.max_pool2d.default", x.sizes, self=x, kernel_size=[3, 3], stride=[1, 1], padding=[1, 1])

    p = Program()
    x = p.input(1, 3, 8, 8)
    for i in range(n):
        x = step(p, x, i)
    return closed(p, x)


@shape
def whole_sums(n):
    """A number of all, for all."""
    return chain_of(n // 2, lambda p, x, _: binary(p, "sub", x, p.op("aten.sum.default", [], self=x)))


@shape
def projections(n):
    """Columns of one product, of which some want fewer rows than the others: queries of the last token beside all keys."""
    p = Program()
    x, w = p.input(1024, 16), p.constant(np.ones((16, 48), np.float32))
    for _ in range(n // 6):
        y = unary(p, "relu", product(p, x, w))
        few = p.op("aten.slice.Tensor", [1, 16], self=p.op("aten.slice.Tensor", [1024, 16], self=y, dim=1, start=0, end=16), dim=0, start=1023, end=1024)
        rest = p.op("aten.slice.Tensor", [1024, 16], self=y, dim=1, start=16, end=32)
        x = p.op("aten.add.Tensor", [1024, 16], self=rest, other=few)
    return closed(p, x)


@shape
def checked_rows(n):
    """Rows that were looked up, of which a part is used: the indices of the others are checked all the same."""
    p = Program()
    table, at = p.input(16, 8), p.input(16, dtype="i64")
    parts = []
    for i in range(n // 3):
        rows = p.op("aten.index_select.default", [16, 8], self=binary(p, "mul", table, i / n), dim=0, index=at)
        parts.append(p.op("aten.slice.Tensor", [2, 8], self=rows, dim=0, start=3, end=5))
    return closed(p, joined(p, parts))


@shape
def images(n):
    """Convolutions that run image by image, in groups."""
    p = Program()
    x, w = p.input(8, 4, 512, 512), p.constant(np.ones((4, 4, 3, 3), np.float32))
    for _ in range(n // 5):
        for _ in range(2):
            x = unary(p, "relu", p.op("aten.conv2d.default", x.sizes, input=x, weight=w, padding=[1, 1]))
        x = p.op("aten.sub.Tensor", x.sizes, self=x, other=reduced(p, "mean.dim", x, [0]))
    return closed(p, x)


@shape
def argmax_chain(n):
    def step(p, x, _):
        at = p.op("aten.argmax.default", [4, 1], "i64", self=x, dim=1, keepdim=True)
        return binary(p, "add", x, p.op("aten.gather.default", [4, 1], self=x, dim=1, index=at))

    return chain_of(n // 3, step)


@shape
def sorts(n):
    def step(p, x, i):
        return p.ops("aten.sort.default", [([4, 8], "f32"), ([4, 8], "i64")], False, self=x, dim=i % 2)[0]

    return chain_of(n, step)


@shape
def split_readers(n):
    """One value in many pieces, each with readers of its own."""
    p = Program()
    x = p.input(n // 3, 8)
    pieces = p.ops("aten.split.Tensor", [([1, 8], "f32")] * (n // 3), self=x, split_size=1, dim=0)
    return closed(p, p.op("aten.cat.default", [n // 3, 8], tensors=[unary(p, "sin", unary(p, "cos", y)) for y in pieces], dim=0))


@shape
def unbound_sum(n):
    p = Program()
    x = p.input(n // 2, 8)
    rows = p.ops("aten.unbind.int", [([8], "f32")] * (n // 2), self=x, dim=0)
    return closed(p, joined(p, rows))


@shape
def sum_of_inputs(n):
    p = Program()
    return closed(p, joined(p, [p.input(4, 8) for _ in range(n)]))


@shape
def chain_of_inputs(n):
    p = Program()
    x = p.input(4, 8)
    for _ in range(n):
        x = binary(p, "add", x, p.input(4, 8))
    return closed(p, x)


@shape
def cat_of_inputs(n):
    p = Program()
    return closed(p, p.op("aten.cat.default", [n, 8], tensors=[p.input(1, 8) for _ in range(n)], dim=0))


@shape
def cats_of_cats(n):
    """A tree of concatenations."""
    p = Program()
    values = [unary(p, "sin", p.input(1, 8)) for _ in range(n // 2)]
    while len(values) > 1:
        pairs = [values[i:i + 2] for i in range(0, len(values), 2)]
        values = [pair[0] if len(pair) == 1 else p.op("aten.cat.default", [pair[0].sizes[0] + pair[1].sizes[0], 8], tensors=pair, dim=0) for pair in pairs]
    return closed(p, values[0])


@shape
def growing_cat(n):
    """A list that grows by one row: what generation loops write out."""
    p = Program()
    x = p.input(1, 2)
    for i in range(min(n // 2, 2000)):
        last = p.op("aten.slice.Tensor", [1, 2], self=x, dim=0, start=i, end=i + 1)
        x = p.op("aten.cat.default", [i + 2, 2], tensors=[x, unary(p, "sin", last)], dim=0)
    return closed(p, x)


@shape
def outer_fans(n):
    """Rows and columns, joined to tables and reduced again."""
    p = Program()
    x = p.input(8)
    for _ in range(n // 4):
        column = p.op("aten.unsqueeze.default", [8, 1], self=x, dim=1)
        table = p.op("aten.mul.Tensor", [8, 8], self=column, other=unary(p, "sin", x))
        x = reduced(p, "sum.dim_IntList", table, [0], False)
    return closed(p, x)


@shape
def broadcast_readers(n):
    """One number, one row and one column that everything reads."""
    p = Program()
    one, row, column = p.input(1, 1), p.input(1, 8), p.input(8, 1)
    parts = [p.op("aten.add.Tensor", [8, 8], self=p.op("aten.mul.Tensor", [8, 8], self=row, other=column), other=binary(p, "mul", one, i / n)) for i in range(n // 4)]
    return closed(p, joined(p, parts))


def typed_chain(n, dtype, *steps):
    p = Program()
    x = p.input(4, 8, dtype=dtype)
    for i in range(n):
        op, arguments = steps[i % len(steps)]
        x = p.op(op, x.sizes, dtype, self=x, **{k: x if v == "x" else v for k, v in arguments.items()})
    return closed(p, x)


@shape
def integers(n):
    return typed_chain(n, "i64", ("aten.add.Tensor", {"other": "x"}), ("aten.mul.Scalar", {"other": 3}), ("aten.bitwise_xor.Tensor", {"other": "x"}), ("aten.bitwise_not.default", {}))


@shape
def doubled(n):
    return typed_chain(n, "i64", ("aten.add.Tensor", {"other": "x"}))


@shape
def squared(n):
    return typed_chain(n, "f32", ("aten.mul.Tensor", {"other": "x"}))


@shape
def booleans(n):
    return typed_chain(n, "bool", ("aten.logical_not.default", {}), ("aten.logical_xor.default", {"other": "x"}), ("aten.logical_or.default", {"other": "x"}))


@shape
def complexes(n):
    return typed_chain(n, "c64", ("aten.mul.Tensor", {"other": "x"}), ("aten.tanh.default", {}), ("aten.conj_physical.default", {}), ("aten.add.Tensor", {"other": "x"}))


@shape
def halves(n):
    return typed_chain(n, "f16", ("aten.sin.default", {}), ("aten.mul.Tensor", {"other": "x"}))


@shape
def casts(n):
    p = Program()
    x = p.input(4, 8)
    types = ("f16", "f64", "i32", "f32", "bf16", "i64", "bool", "f32")
    for i in range(n):
        x = p.op("aten._to_copy.default", x.sizes, types[i % 8], self=x, dtype=None)
        p.nodes[-1]["inputs"][1]["arg"] = {"as_scalar_type": p.values[x.name]["dtype"]}
    return closed(p, x)


@shape
def masks(n):
    p = Program()
    x, mask = p.input(4, 8), p.input(4, 8, dtype="bool")
    for i in range(n // 2):
        x = p.op("aten.masked_fill.Scalar", x.sizes, self=x, mask=mask, value=i / n)
        x = p.op("aten.clamp.default", x.sizes, self=x, min=-1.0 - i, max=1.0 + i)
    return closed(p, x)


@shape
def triangles(n):
    return chain_of(n, lambda p, x, i: p.op(f"aten.{('tril', 'triu')[i % 2]}.default", x.sizes, self=x, diagonal=i % 9 - 4))
