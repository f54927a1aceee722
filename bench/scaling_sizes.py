"""Programs of n nodes with control flow, states, and sizes that are known late."""

import numpy as np

from scaling_programs import Graph, Program, binary, closed, shape, unary


@shape
def states(n):
    p = Program()
    x = p.input(4)
    for i in range(n // 2):
        b = p.state(np.full(4, i, np.float32))
        p.op("aten.add_.Tensor", [4], self=b, other=x)
        x = binary(p, "add", x, b)
    return closed(p, x)


@shape
def branches(n):
    p = Program()
    x = p.input(4, 8)
    for i in range(n // 6):
        c = binary(p, "gt", p.op("aten.sum.default", [], self=x), 0.5, "bool")
        arms = []
        for name, op in (("t", "sin"), ("f", "cos")):
            g = Graph(f"{name}{i}")
            y = unary(g, op, g.capture(x))
            g.output(y)
            arms.append(g)
        x = p.op("higher_order.cond", [4, 8], _pred=c, _true=arms[0], _false=arms[1], _operands=[x])
    return closed(p, x)


def nest(g, x, depth, names):
    """A branch in a branch in a branch: 2^depth of them."""
    if depth == 0:
        return unary(g, "sin", x)
    c = binary(g, "gt", g.op("aten.sum.default", [], self=x), 0.5, "bool")
    arms = []
    for _ in range(2):
        names.append(0)
        arm = Graph(f"g{len(names)}")
        y = nest(arm, arm.capture(x), depth - 1, names)
        arm.output(unary(arm, "cos", y))
        arms.append(arm)
    return g.op("higher_order.cond", x.sizes, _pred=c, _true=arms[0], _false=arms[1], _operands=[x])


@shape
def nested_branches(n):
    p = Program()
    x, names = p.input(4, 8), []
    for _ in range(max(1, n // 192)):
        x = nest(p, x, 5, names)
    return closed(p, x)


@shape
def assertions(n):
    p = Program()
    x = p.input(4, 8)
    for i in range(n // 3):
        c = binary(p, "gt", p.op("aten.sum.default", [], self=x), -1000.0 - i, "bool")
        p.check("aten._assert_async.msg", self=c, assert_msg=f"the sum of part {i} is too small")
    return closed(p, unary(p, "sin", x))


@shape
def dynamic_chain(n):
    p = Program()
    s = p.symbol("s0", 6)
    x = p.input(s, 8)
    for i in range(n):
        x = unary(p, "sin" if i % 2 else "relu", x)
    return closed(p, x)


@shape
def dynamic_matmuls(n):
    p = Program()
    s = p.symbol("s0", 6)
    x, w = p.input(s, 8), p.constant(np.eye(8, dtype=np.float32))
    for _ in range(n // 2):
        x = unary(p, "tanh", p.op("aten.mm.default", [s, 8], self=x, mat2=w))
    return closed(p, x)


@shape
def many_symbols(n):
    """A size of its own for each input, each an output: many formulas of memory."""
    p = Program()
    for i in range(n // 2):
        x = p.input(p.symbol(f"s{i}", 3 + i % 5), 8)
        p.output(p.op("aten.cumsum.default", x.sizes, self=unary(p, "sin", x), dim=0))
    return p


@shape
def dynamic_cat(n):
    """Sizes s0 + s1 + ...: sums that grow with the program."""
    p = Program()
    x = p.input(p.symbol("s0", 3), 8)
    for i in range(1, min(n // 2, 60)):
        y = p.input(p.symbol(f"s{i}", 3), 8)
        x = p.op("aten.cat.default", [x.sizes[0] + y.sizes[0], 8], tensors=[x, y], dim=0)
    for _ in range(n - min(n, 120)):
        x = unary(p, "sin", x)
    return closed(p, x)


@shape
def guards(n):
    p = Program()
    x = p.input(p.symbol("s0", 6), 8)
    n_guards = min(n, 9000)
    p.guards = [f"L['x0'].size()[0] >= {-i}" if i % 2 else f"L['x0'].size()[0] < {10 ** 9 + i}" for i in range(n_guards)]
    return closed(p, unary(p, "relu", x))
