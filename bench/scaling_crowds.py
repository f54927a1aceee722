"""Programs of many of one thing, for compile_scaling.py: sizes that data decides, tables, layers with weights of their own, transforms, systems, formats, scans."""

import numpy as np

from scaling_programs import Graph, Program, Size, binary, closed, joined, shape, unary


def size_from_data(p, number):
    u = Size(f"Symbol('u{number}', integer=True)", 3)
    p.ranges[f"u{number}"] = {"min_val": 0, "max_val": None}
    return u


# ---- Sizes
@shape
def late_outputs(n):
    """Outputs whose sizes only data decides, each of an input of its own."""
    p = Program()
    for i in range(min(n // 3, 4000)):
        x = p.input(6)
        p.output(p.op("aten.nonzero.default", [size_from_data(p, i), 1], "i64", self=binary(p, "gt", x, 0.25, "bool")))
    return p


@shape
def masked_sums(n):
    """What a mask leaves of one tensor, summed."""
    p = Program()
    x, parts = p.input(6, 8), []
    for i in range(min(n // 4, 4000)):
        u = size_from_data(p, i)
        rows = p.op("aten.index.Tensor", [u, 8], self=x, indices=[binary(p, "gt", p.input(6), 0.25, "bool")])
        parts.append(p.op("aten.sum.dim_IntList", [8], self=rows, dim=[0]))
    return closed(p, joined(p, parts))


@shape
def dynamic_scans(n):
    """More calls of dynamic sizes than one file of the host program has."""
    p = Program()
    x = p.input(p.symbol("s0", 6), 8)
    for i in range(n):
        x = p.op("aten.cumsum.default", x.sizes, self=x, dim=i % 2)
    return closed(p, x)


@shape
def dynamic_outputs(n):
    """Outputs of one dynamic size each, all of them different."""
    p = Program()
    s = p.symbol("s0", 6)
    x = p.input(s, 4)
    for i in range(n // 2):
        p.output(p.op("aten.constant_pad_nd.default", [s + (i + 1), 4], self=unary(p, "sin", x), pad=[0, 0, 0, i + 1], value=0.5))
    return p


@shape
def symbols_with_checks(n):
    """Inputs of sizes of their own, of which guards say something each."""
    p = Program()
    parts = []
    for i in range(min(n // 2, 9000)):
        x = p.input(p.symbol(f"s{i}", 3), 4)
        parts.append(p.op("aten.sum.dim_IntList", [4], self=x, dim=[0]))
        p.guards.append(f"L['x{i}'].size()[0] % {2 + i % 3} != {i % 2} or L['x{i}'].size()[0] < {100 + i}")
    return closed(p, joined(p, parts))


# ---- Weights of their own
def weights(rng, *sizes):
    return rng.standard_normal(sizes).astype(np.float32) / float(np.prod(sizes[1:])) ** 0.5


@shape
def own_layers(n):
    """Products whose weights all differ."""
    p, rng = Program(), np.random.default_rng(0)
    x = p.input(4, 8)
    for _ in range(n // 2):
        x = unary(p, "tanh", p.op("aten.linear.default", [4, 8], input=x, weight=p.constant(weights(rng, 8, 8)), bias=p.constant(weights(rng, 8))))
    return closed(p, x)


@shape
def own_convolutions(n):
    p, rng = Program(), np.random.default_rng(0)
    x = p.input(1, 4, 6, 6)
    for _ in range(n // 2):
        x = unary(p, "relu", p.op("aten.conv2d.default", x.sizes, input=x, weight=p.constant(weights(rng, 4, 4, 3, 3)), bias=p.constant(weights(rng, 4)), padding=[1, 1]))
    return closed(p, x)


@shape
def own_tables(n):
    """Embeddings, each in a table of its own."""
    p, rng = Program(), np.random.default_rng(0)
    at, parts = p.input(3, dtype="i64"), []
    for _ in range(n // 2):
        parts.append(p.op("aten.embedding.default", [3, 4], weight=p.constant(weights(rng, 5, 4)), indices=at))
    return closed(p, joined(p, parts))


@shape
def own_scales(n):
    """Constants that one loop could read."""
    p, rng = Program(), np.random.default_rng(0)
    x = p.input(4, 8)
    for i in range(n // 2):
        x = p.op(f"aten.{'mul' if i % 2 else 'add'}.Tensor", [4, 8], self=x, other=p.constant(weights(rng, 8)))
    return closed(p, unary(p, "sin", x))


@shape
def own_norms(n):
    p, rng = Program(), np.random.default_rng(0)
    x = p.input(4, 8)
    for _ in range(n):
        x = p.op("aten.layer_norm.default", [4, 8], input=x, normalized_shape=[8], weight=p.constant(weights(rng, 8)), bias=p.constant(weights(rng, 8)))
    return closed(p, x)


# ---- Pieces
@shape
def cat_split_pairs(n):
    """Halves that change places again and again."""
    p = Program()
    x = p.input(4, 8)
    for i in range(n // 3):
        a, b = p.ops("aten.split.Tensor", [([4, 4], "f32")] * 2, self=unary(p, "sin", x), split_size=4, dim=1)
        x = p.op("aten.cat.default", [4, 8], tensors=[b, a], dim=1)
    return closed(p, x)


@shape
def bool_masks(n):
    """Masked fills by masks of masks."""
    p = Program()
    x, m = p.input(4, 8), p.input(4, 8, dtype="bool")
    for i in range(n // 3):
        m = p.op("aten.logical_xor.default", [4, 8], "bool", self=m, other=binary(p, "gt", x, 0.01 * (i % 7), "bool"))
        x = p.op("aten.masked_fill.Scalar", [4, 8], self=x, mask=m, value=0.5 + i % 3)
    return closed(p, x)


@shape
def topks(n):
    p = Program()
    x = p.input(4, 8)
    for _ in range(n // 2):
        values, at = p.ops("aten.topk.default", [([4, 8], "f32"), ([4, 8], "i64")], False, self=x, k=8, dim=1)
        x = p.op("aten.gather.default", [4, 8], self=unary(p, "neg", values), dim=1, index=at)
    return closed(p, x)


# ---- Routines and control flow
@shape
def transforms(n):
    p = Program()
    x = p.input(4, 8)
    for _ in range(n // 3):
        f = p.op("aten._fft_r2c.default", [4, 5], "c64", self=x, dim=[1], normalization=0, onesided=True)
        x = unary(p, "tanh", p.op("aten._fft_c2r.default", [4, 8], self=f, dim=[1], normalization=2, last_dim_size=8))
    return closed(p, x)


@shape
def small_scans(n):
    """Scans of four steps."""
    p = Program()
    h, xs = p.input(8), p.input(4, 8)
    for k in range(n // 4):
        g = Graph(f"s{k}")
        carry, row = g.capture(h), g._value(f"s{k}_row", [8], "f32")
        g.inputs.append(row)
        after = unary(g, "tanh", binary(g, "add", carry, row))
        g.output(after)
        g.output(binary(g, "mul", after, 0.5))
        h, xs = p.ops("higher_order.scan", [([8], "f32"), ([4, 8], "f32")], False, _combine=g, _init=[h], _xs=[xs], _more=[])
    return closed(p, h, xs)


@shape
def many_randoms(n):
    """Dropout by random numbers: each call has numbers of its own."""
    p = Program()
    x = p.input(4, 8)
    for _ in range(n // 4):
        kept = binary(p, "gt", p.op("aten.rand.default", [4, 8], size=[4, 8], dtype=None), 0.1, "bool")
        x = p.op("aten.where.self", [4, 8], condition=kept, self=unary(p, "sin", x), other=p.op("aten.zeros_like.default", [4, 8], self=x))
    return closed(p, x)
